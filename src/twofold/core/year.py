"""How long a day and a year are, for every floor: 365 days, as prices, tariffs and availabilities count."""

DAY_S = 86_400.0
YEAR_H = 8760.0
YEAR_S = YEAR_H * 3600.0
J_PER_KWH = 3.6e6
