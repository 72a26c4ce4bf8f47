"""Numbers of objects that come and go: never one number for two, and no trace of the dead."""

import weakref

from fuelline.record.hooks.identities import LEAST_ENTRIES, Identities


class Thing:
    pass


def test_an_object_keeps_its_number_and_equal_ones_have_their_own() -> None:
    identities, things = Identities(), [Thing(), Thing()]
    assert [identities.find(thing) for thing in things] == [None, None]
    assert [identities.add(thing) for thing in things] == [1, 2]
    assert [identities.find(thing) for thing in things] == [1, 2]


def test_whoever_gets_the_id_of_a_dead_object_has_not_its_number() -> None:
    identities, seen = Identities(), set()
    for _ in range(10):
        thing = Thing()
        seen.add(id(thing))
        assert identities.find(thing) is None
        identities.add(thing)
        del thing
    assert len(seen) < 10


def test_the_dead_are_forgotten_and_the_living_are_not() -> None:
    identities, living = Identities(), []
    for number in range(100 * LEAST_ENTRIES):
        thing = Thing()
        identities.add(thing)
        if number % 50 == 0:
            living.append((thing, number + 1))
    assert len(identities.entries) <= 2 * len(living)
    assert all(identities.find(thing) == number for thing, number in living)


def test_no_function_is_called_when_an_object_dies() -> None:
    """Python would run signal handlers on entering it, and lose what they raise."""
    identities, thing = Identities(), Thing()
    identities.add(thing)
    (reference,) = weakref.getweakrefs(thing)
    assert reference.__callback__ is None
