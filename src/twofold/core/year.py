"""How long a year is, for every floor: 365 days, as prices, tariffs and availabilities count it."""

YEAR_H = 8760.0
YEAR_S = YEAR_H * 3600.0
