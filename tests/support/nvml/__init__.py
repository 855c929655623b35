"""A fake `libnvidia-ml.so.1`, which simulates a host with GPUs on a machine without one.

A host is a JSON file in `boxes/`. The real nvidia-ml-py loads the fake library in its place:

    environment = driver("eight-h100").environment   # of the fixture `driver`
    subprocess.run([sys.executable, "-m", "lab", "gpus"], env={**os.environ, **environment})

pynvml loads the library once in a process: a process sees one host, and not that of the tests.
"""
