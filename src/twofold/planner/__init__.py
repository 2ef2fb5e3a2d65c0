"""One spec becomes one plan: answers, portfolio, money, building, rehearsal; compares and explains."""
