from .files import DeviceRecord as DeviceRecord
from .files import notes_about as notes_about
from .files import read_device as read_device
from .rows import measure_into as measure_into
