"""Makes what every process would make anew: for the process that the others are forks of."""

from __future__ import annotations

from inferd.protocol.calls import codec
from inferd.settlement.data_fee import samples

for _name in ("InferenceRequests", "InferenceResults", "Diary"):
    codec(_name)
samples()
