"""What the gateway costs on this machine: `toolwire bench`.

`bench parse`: `corpus` makes texts, `contestants` names what is compared (`naive` and `libraries` beside the scanner's
twins), `timing` takes times, `parse` runs it all, `report` and `plot` show it. `bench gateway` is `gateway`. `command`
is behind the flags of both. Nothing of this is imported by the gateway itself.
"""
