from .lines import Entry as Entry
from .lines import LineFormat as LineFormat
from .machine import Machine as Machine
from .machine import Woke as Woke
from .machine import record as record
