from . import events as events
from . import settings as settings
from .breaker import state_of as state_of
from .chance import GOLDEN as GOLDEN
from .chance import scrambled as scrambled
from .gate import Gate as Gate
