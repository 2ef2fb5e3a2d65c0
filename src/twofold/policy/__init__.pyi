from .lines import Entry as Entry
from .lines import LineFormat as LineFormat
from .lines import reader_of as reader_of
from .machine import Machine as Machine
from .record import record as record
