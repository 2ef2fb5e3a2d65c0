from .bill import LEAST_USD as LEAST_USD
from .detail import detailed_money as detailed_money
from .first_year import check_budget as check_budget
from .first_year import rent_of_year as rent_of_year
from .first_year import with_money as with_money
from .portfolio import in_portfolio as in_portfolio
from .portfolio import names_of as names_of
from .portfolio import rounding_usd as rounding_usd
