"""Twofold plans both halves of AI infrastructure, training and serving, from one spec.

    import twofold
    plan = twofold.plan("twofold.yaml")               # a path, YAML text, a mapping
    plan.training[0].step_s                           # an estimate: value, 80 % range, unit, source
    twofold.explain(plan, "training.pretrain.step_s")
    twofold.estimate.train("llama-3.1-70b", "64x8xH100-SXM", batch="512 seq")

Every function stands in `twofold.app` with its types, and is imported when first asked for; what it returns
shows itself in a terminal and in a notebook. Every door lists its names once, in the stub beside it.
"""

import lazy_loader

__version__ = "0.1.0"
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
