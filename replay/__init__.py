"""What a log can be made into, and what can be read out of one; the command line.

- simulate: ``request`` (what is asked), ``run`` (checked and carried out), ``simulate`` (the four
  cores, put together), ``driver`` (the virtual clock), ``cluster`` (accelerators), ``summary``.
- read: ``verify``, ``story`` (in words), ``moment`` (all that was so at a record, and going on from
  there) with its folds ``world``, ``speeds``, ``underway`` and ``received``; ``index``, ``places``.
- ask: ``travel``, ``explain``, ``whatif``, ``sweep``, ``report``, ``paper``; ``traces`` come in.
- ``live`` speaks to a running cluster, ``cli`` to people.
"""
