"""Places: what a job waits for is what was said, whatever it is called."""

from __future__ import annotations

import pytest

from ratchet.model.places import key_place, keys_of, parked_at, target_of, without_target

PLACES = (None, "", "shop:charge", key_place(["a"]), key_place(["b", "c"]))


@pytest.mark.parametrize(
    "place", [*PLACES, parked_at(key_place(["a"]), ""), parked_at(key_place(["a"]), "t")]
)
@pytest.mark.parametrize("target", ["shop:pay", "", "a;b", "$"])
def test_a_job_without_its_function_waits_for_that(place: str | None, target: str) -> None:
    """A damaged name too: at a place without it every claim would take the job again."""
    parked = parked_at(place, target)
    assert target_of(parked) == target
    assert keys_of(parked) == keys_of(place)
    assert target_of(without_target(parked)) is None


@pytest.mark.parametrize("place", PLACES)
def test_a_job_without_a_key_waits_for_it_too(place: str | None) -> None:
    """What it needed before, it still needs."""
    parked = parked_at(place, key_place(["z"]))
    assert target_of(parked) == target_of(place)
    assert set(keys_of(parked)) == {*keys_of(place), "z"}
