"""What a plan costs and why: bills, units, levers, owning against renting, hosted APIs, downtime."""
