"""Words from elsewhere, such as names of files, made fit for one line of a terminal. Pure."""


def one_line(text: str) -> str:
    """The text with its control characters, line breaks and undecodable bytes spelt out: they move no cursor."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
