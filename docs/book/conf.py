"""Settings of Sphinx."""

from __future__ import annotations

import os

from docs.book import versions

project = "Ratchet"
version = release = versions.label()
html_title = f"Ratchet {release}"
extensions = ["myst_parser", "sphinx_copybutton"]
source_suffix = {".md": "markdown"}
language = "en"

myst_heading_anchors = 4
myst_enable_extensions = ["tasklist"]
# `tracing`, `mermaid` and other languages that no lexer knows are shown as they are.
highlight_language = "text"
pygments_dark_style = "one-dark"

html_theme = "furo"
templates_path = [os.environ["RATCHET_BOOK_TEMPLATES"]]
# As furo has them, with the versions below the name.
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/versions.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
html_static_path = [os.environ["RATCHET_BOOK_STATIC"]]
html_css_files = ["book.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_use_index = False
html_domain_indices = False
html_show_sourcelink = False
html_baseurl = ""
copybutton_prompt_text = r"\$ |>>> "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True
copybutton_remove_prompts = True
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1f5fa8", "color-brand-content": "#1f5fa8"},
    "dark_css_variables": {"color-brand-primary": "#7db4f2", "color-brand-content": "#7db4f2"},
}
