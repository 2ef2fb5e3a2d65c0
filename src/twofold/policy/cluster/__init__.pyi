from . import events as events
from . import settings as settings
from .brain import ClusterBrain as ClusterBrain
from .cadence import checkpoint_interval_s as checkpoint_interval_s
