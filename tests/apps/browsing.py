"""What tests of every page do in the browser."""


def settled(page, text, seconds=20):
    """Wait until a text is on the page."""
    page.get_by_text(text, exact=False).first.wait_for(timeout=1000 * seconds)


def wait_for_query(page, **expected):
    """Wait for the address: a value, True where there is any, None where there is none."""
    code = """(wanted) => {
        const found = new URLSearchParams(window.location.search);
        return Object.entries(wanted).every(([k, v]) => v === null ? !found.has(k)
            : v === true ? found.has(k) : found.get(k) === v);
    }"""
    page.wait_for_function(code, arg=expected)


def refuse(page, settings, words=None):
    """Check that settings of the address are named as wrong, and taken out of it."""
    for told in words or settings:
        settled(page, told)
    wait_for_query(page, **{setting.partition("=")[0]: None for setting in settings})
