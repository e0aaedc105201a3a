"""
The soak: operations of every kind at once, in an order that a seed decides, on workers that are killed, frozen and replaced.

`play.soak` is the scenario. `operations` says what users do, `blows` what happens to the workers, `log` what jobs write down outside of any store, and
`invariants` what must hold at the end. ``python -m tests.chaos --scenarios soak --seed 7`` plays one seed again.
"""
