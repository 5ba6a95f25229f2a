"""Measures the speed of the gateway on this machine: `toolwire bench`.

`bench parse`: `corpus` creates texts, `contestants` lists the compared parsers (`naive` and `libraries` besides the two
scanners), `timing` measures times, `parse` runs everything, `report` and `plot` present it. `bench gateway` is in
`gateway`. `command` implements the flags of both. The gateway itself imports none of this.
"""
