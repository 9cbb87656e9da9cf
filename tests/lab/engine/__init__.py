"""The stand-in SGLang engine: what runs in the lab's container image, started by the argv the product renders.

Standard library only: the image holds a Python interpreter and nothing else. Modules import each other relatively,
because the image installs this folder under the name `sglang`.
"""
