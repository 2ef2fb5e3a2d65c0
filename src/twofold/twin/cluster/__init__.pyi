from . import cluster_types as cluster_types
from .cluster import simulate_cluster as simulate_cluster
from .faults import published_rates as published_rates
from .jobs import SHAPES as SHAPES
from .jobs import JobArrival as JobArrival
from .jobs import JobEnd as JobEnd
from .jobs import JobTraffic as JobTraffic
from .jobs import generate_jobs as generate_jobs
