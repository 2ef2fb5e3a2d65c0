from .machine import Entry as Entry
from .machine import LineFormat as LineFormat
from .machine import Machine as Machine
from .machine import Woke as Woke
from .machine import record as record
