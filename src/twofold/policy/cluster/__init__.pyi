from . import events as events
from .brain import ClusterBrain as ClusterBrain
from .cadence import checkpoint_interval_s as checkpoint_interval_s
from .settings import CadenceSettings as CadenceSettings
from .settings import ClusterSettings as ClusterSettings
from .settings import FaultSettings as FaultSettings
from .settings import TeamQuota as TeamQuota
