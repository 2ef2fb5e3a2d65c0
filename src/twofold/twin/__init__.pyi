from .heap import Heap as Heap
from .histogram import Histogram as Histogram
from .histogram import Stream as Stream
from .storage import SharedStore as SharedStore
