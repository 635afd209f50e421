"""Results for people: the terminal's table (table.py) and the self-contained report.html (html.py).

Both show the same columns and the same warnings, which are defined once, in figures.py.
"""
