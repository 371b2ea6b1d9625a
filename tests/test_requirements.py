"""What a machine lacks is left out, but not by who judges a change."""

import pytest

from support.requirements import leave_out

REQUIRED = "TIDELOG_REQUIRE_CLIENTS"


def test_what_a_machine_lacks_is_skipped_and_where_all_is_required_it_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(REQUIRED, raising=False)
    with pytest.raises(pytest.skip.Exception, match="no such thing"):
        leave_out("no such thing")
    monkeypatch.setenv(REQUIRED, "1")
    with pytest.raises(pytest.fail.Exception, match="no such thing"):
        leave_out("no such thing")
