def document() -> str:
    return ""
