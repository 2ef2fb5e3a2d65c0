__version__: str

from .app import calibrate as calibrate
from .app import catalog_rows as catalog_rows
from .app import check as check
from .app import claims as claims
from .app import compare as compare
from .app import diff as diff
from .app import down as down
from .app import estimate as estimate
from .app import explain as explain
from .app import infer as infer
from .app import kernels as kernels
from .app import measure_device as measure_device
from .app import partitions as partitions
from .app import plan as plan
from .app import predict as predict
from .app import rehearsed_plan as rehearsed_plan
from .app import search_fleets as search_fleets
from .app import search_layouts as search_layouts
from .app import simulate as simulate
from .app import starter as starter
from .app import up as up
from .app import validate as validate
