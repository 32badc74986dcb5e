from __future__ import annotations

from collections.abc import Iterator

import pytest

from stele.wire import native


@pytest.fixture(scope="module", params=["python", "compiled"])
def each_reader(request: pytest.FixtureRequest) -> Iterator[None]:
    """Records are read by Python, and then by the compiled module where it is built."""
    module, reader = native.load("0" if request.param == "python" else "auto")
    if module is None and request.param == "compiled":
        pytest.skip(f"no compiled module: {reader}")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(native, "NATIVE", module)
        yield
