"""
Builds the site of the documentation: ``python -m docs.book`` (``make site``).

`pages` gathers what is in ``docs/`` and puts it in order, `api` writes the pages that Sphinx fills from docstrings, `states` draws the state
diagram, `llms` writes the list of pages for language models, `check` looks at what was built, and ``__main__`` does one after the other.
"""
