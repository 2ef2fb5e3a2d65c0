from .names import Names as Names
from .names import did_you_mean as did_you_mean
from .names import fold as fold
from .names import unknown_name as unknown_name
from .render import render_error as render_error
