from .lines import Entry as Entry
from .lines import LineFormat as LineFormat
from .machine import Machine as Machine
from .record import record as record
