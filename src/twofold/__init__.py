"""Twofold plans both halves of AI infrastructure, training and serving, from one spec.

    import twofold
    plan = twofold.plan("twofold.yaml")               # a path, YAML text, a mapping
    plan.training[0].step_s                           # an estimate: value, 80 % range, unit, source
    twofold.explain(plan, "training.pretrain.step_s")
    twofold.estimate.train("llama-3.1-70b", "64x8xH100-SXM", batch="512 seq")

The verbs, one line each:

    starter         A commented starter spec: `chat`, `train` or `both`
    infer           The spec that what you run lets infer
    check           Validate a spec: every error in one pass, with its place
    plan            Plan both halves of a spec on one screen
    rehearsed_plan  The same plan, its best fleets confirmed on the twin
    search_fleets   The cheapest fleet for a spec's services, and why the others lost
    search_layouts  The fastest layouts of one training step, ranked
    compare         Each half on the other's fleet, or one axis at a time
    estimate        Answer one question without a spec
    explain         Show where a number of a plan comes from
    diff            Show what changed between two plans
    catalog_rows    List and filter the tables that plans are made from
    partitions      What a device can be cut into, and whether a mix fits
    kernels         Which kernels each engine has on a device
    claims          Judge what circulates about infrastructure by the product itself
    simulate        Rehearse a plan in the digital twin, under traffic and faults
    up              Train, serve and measure on this machine; planned beside measured
    prove           Rehearse four scenarios in the twin, freeze, run them for real, compare
    down            Stop what `up` started, and remove its state
    measure_device  Measure this machine as a device that plans use
    measure_serve   Measure any service under load, by its address
    measure_train   Measure short runs of your own model on this machine
    measure_import  Import what other load generators measured
    calibrate       Fit a few factors to rows that you measured, for plans beside
    predict         Predict measured runs, row by row
    validate        Score predictions on measured runs, against the goals
    render          Write the files with which a plan runs: scripts, jobs, manifests
    write_page      Write a plan, a rehearsal or a run as one page to mail
    status          How the service that `up` started is, on one screen
    top             The same as a live view, with a row per replica
    logs            What the programs of a service said last
    verify_log      Whether the gateway's log of requests is as it wrote it
    add_key         Make a key for a tenant of a service
    list_keys       List whose keys a service has
    revoke_keys     Remove keys of a service
    submit_job      Queue a training run or a command on this machine's slots
    list_jobs       Jobs of a queue: whose, in which state, at which step
    cancel_job      Take a job out of its queue, or end it
    job_logs        What a job said last
    Registry        Models by digest: push, approve, judge, promote, roll back, verify, trace
    completion      Print the script by which bash, zsh or fish completes words

Every function stands below `twofold.app` with its types, and is imported when first asked for; what it
returns shows itself in a terminal and in a notebook.
"""

import lazy_loader

__version__ = "0.1.0"
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
