__version__: str

from .app.catalogue import catalog_rows as catalog_rows
from .app.checking import check as check
from .app.checking import infer as infer
from .app.checking import starter as starter
from .app.claiming import claims as claims
from .app.completing import completion as completion
from .app.device_tables import kernels as kernels
from .app.device_tables import partitions as partitions
from .app.estimating import estimate as estimate
from .app.estimating import search_layouts as search_layouts
from .app.looping import down as down
from .app.looping import up as up
from .app.measured_rows import calibrate as calibrate
from .app.measured_rows import predict as predict
from .app.measured_rows import validate as validate
from .app.measuring import measure_device as measure_device
from .app.planning import compare as compare
from .app.planning import diff as diff
from .app.planning import explain as explain
from .app.planning import plan as plan
from .app.planning import rehearsed_plan as rehearsed_plan
from .app.planning import search_fleets as search_fleets
from .app.rendering import render as render
from .app.reporting import write_page as write_page
from .app.simulating import simulate as simulate
