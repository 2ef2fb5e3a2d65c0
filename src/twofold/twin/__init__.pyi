from .heap import Heap as Heap
from .histogram import Histogram as Histogram
from .histogram import Stream as Stream
from .storage import METADATA_ALARM_FRACTION as METADATA_ALARM_FRACTION
from .storage import MetadataRow as MetadataRow
from .storage import SharedStore as SharedStore
from .storage import metadata_sweep as metadata_sweep
