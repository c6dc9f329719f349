"""Prints a chart as JSON: the findings of `helm lint`, and the rendered objects, each valid for Kubernetes.

    chart.py FOLDER [VALUES]     VALUES: a JSON object that overrides values.yaml
"""

import json
import sys

import kubernetes_validate
import yaml
from helm_python.chart import Chart, lint

# The oldest version that `kubeVersion` of the chart permits, and the newest that is known.
VERSIONS = ["1.30", kubernetes_validate.latest_version()]

folder, values = sys.argv[1], json.loads(sys.argv[2] if len(sys.argv) > 2 else "{}")
with Chart.load(folder) as chart:
    rendered = chart.render(values=values, name="payferry", namespace="default")
files = {name: list(yaml.safe_load_all(text)) for name, text in rendered.items() if name.endswith(".yaml")}
objects = [found for documents in files.values() for found in documents if found]
for found in objects:
    for version in VERSIONS:
        kubernetes_validate.validate(found, version, strict=True)
print(json.dumps({"lint": lint(folder, values)["messages"], "objects": objects}))
