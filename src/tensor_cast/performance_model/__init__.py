"""From leaf operators to time: measured first, analytic only for what was never measured."""
