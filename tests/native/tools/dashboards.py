#!/usr/bin/env python3
"""Checks the dashboards (packaging/grafana/*.json) against the rules of Grafana's dashboard-linter, and sends each of their queries to a Prometheus.
It repeats the linter's rules that matter here, because not every machine can fetch the linter. Prometheus says whether a query can be parsed.

usage: dashboards.py lint FOLDER            prints each error on a line
       dashboards.py ask FOLDER URL WHAT    sends each query: prints `DASHBOARD / PANEL: error TEXT`, `...: empty` or `...: data`

WHAT is JSON: values of variables, such as {"mount": "/data"}. Other variables match anything. Queries of variables are sent, too: `DASHBOARD / $NAME`."""
import glob
import json
import pathlib
import re
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

UNITS = {"s", "bytes", "Bps", "ops", "short", "percentunit"}
COUNTER = re.compile(r"\b(?:plumbline|libcephfsd)_\w*(?:_total|_sum|_count|_bucket)\b")


def dashboards(folder):
    return {pathlib.Path(file).stem: json.loads(pathlib.Path(file).read_text()) for file in sorted(glob.glob(f"{folder}/*.json"))}


def selectors(expression):
    """Returns the series of an expression, each with its matchers."""
    return re.findall(r"\b((?:plumbline|libcephfsd|scrape)_\w+)(\{[^}]*\})?", expression)


def lint_dashboard(board):
    variables = {one["name"]: one for one in board["templating"]["list"]}
    source = variables.get("datasource", {})
    if (source.get("type"), source.get("query"), source.get("label")) != ("datasource", "prometheus", "Data source"):
        yield "no variable `datasource` of type prometheus, labelled Data source"
    for name in ("job", "instance"):
        one = variables.get(name, {})
        if (one.get("label"), one.get("multi"), one.get("allValue")) != (name.capitalize(), True, ".+"):
            yield f"the variable `{name}` must be labelled {name.capitalize()}, multi, and match all by .+"
    for name, one in variables.items():
        if one["type"] == "query" and (one.get("datasource", {}).get("uid") != "${datasource}" or one.get("refresh") != 2):
            yield f"the variable `{name}` must ask the chosen data source, whenever the time changes"
    if board.get("editable") is not False:
        yield "it can be edited: what is changed there is lost"
    if len({panel["id"] for panel in board["panels"]}) != len(board["panels"]):
        yield "two panels have one id"
    used = json.dumps(board["panels"])
    for name in set(re.findall(r"\$\{?(\w+)", used)) - set(variables) - {"__rate_interval", "__range"}:
        yield f"there is no variable ${name}"
    for name in set(variables) - {"datasource"}:
        if f"${name}" not in used:
            yield f"no panel uses ${name}"


def lint_panel(panel):
    if not panel.get("title") or not panel.get("description"):
        yield "it has no title, or no description"
    if panel.get("datasource", {}).get("uid") != "${datasource}":
        yield "it does not ask the chosen data source"
    if panel["fieldConfig"]["defaults"].get("unit") not in UNITS:
        yield "it has no unit that is known"
    place = panel["gridPos"]
    if place["x"] + place["w"] > 24 or not panel.get("targets"):
        yield "it is out of the grid, or asks nothing"
    over_time = panel["type"] in ("timeseries", "heatmap")
    for target in panel.get("targets", []):
        expression = target["expr"]
        for name, matchers in selectors(expression):
            if 'job=~"$job"' not in matchers or 'instance=~"$instance"' not in matchers:
                yield f"{name} is not limited to $job and $instance"
        for function, window in re.findall(r"\b(rate|increase|irate)\([^[]*\[([^\]]*)\]", expression):
            if window != "$__rate_interval" and (over_time or function != "increase" or window != "$__range"):
                yield f"{function} over {window}, rather than over $__rate_interval"
        for at in COUNTER.finditer(expression):
            if not re.search(r"(?:rate|increase)\($", expression[: at.start()]) and "count by (batch_job" not in expression:
                yield f"{at.group()} is a counter: its rate means something"


def lint(folder):
    boards = dashboards(folder)
    for name, board in boards.items():
        for what in lint_dashboard(board):
            yield f"{name}: {what}"
        for panel in board["panels"]:
            for what in lint_panel(panel):
                yield f"{name} / {panel['title']}: {what}"
    if len({board["uid"] for board in boards.values()}) != len(boards):
        yield "two dashboards have one uid"


def api(url, path, **arguments):
    try:
        with urllib.request.urlopen(f"{url}/api/v1/{path}?{urllib.parse.urlencode(arguments)}", timeout=20) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return json.load(error)


def filled(text, values, rate="10s", range_="5m"):
    """Returns a query as Grafana sends it, with the values of variables."""
    for name, value in {"__rate_interval": rate, "__range": range_, **values}.items():
        text = re.sub(rf"\$\{{?{name}\b\}}?", lambda _: value, text)
    return re.sub(r"\$\{?\w+\}?", ".+", text)


def series_of(url, target, values, minutes=5):
    expression = filled(target["expr"], values)
    if target.get("instant"):
        return api(url, "query", query=expression)
    now = time.time()
    return api(url, "query_range", query=expression, start=now - 60 * minutes, end=now, step=max(1, minutes // 3))


def ask(folder, url, values):
    for name, board in dashboards(folder).items():
        for panel in board["panels"]:
            answers = [series_of(url, target, values) for target in panel["targets"]]
            wrong = [answer["error"] for answer in answers if answer["status"] != "success"]
            points = [float(at[1]) for answer in answers if not wrong for one in answer["data"]["result"] for at in one.get("values", [one.get("value")])]
            # NaN differs from itself.
            print(f"{name} / {panel['title']}: " + (f"error {wrong[0]}" if wrong else "data" if any(one == one for one in points) else "empty"))


def variables_of(folder, url, values):
    """Sends the queries of the variables."""
    for name, board in dashboards(folder).items():
        for one in board["templating"]["list"]:
            if one["type"] != "query":
                continue
            series, label = re.fullmatch(r"label_values\((.*), (\w+)\)", one["query"]).groups()
            answer = api(url, f"label/{label}/values", **{"match[]": filled(series, values)})
            print(f"{name} / ${one['name']}: " + (f"error {answer['error']}" if answer["status"] != "success" else "data" if answer["data"] else "empty"))


def main():
    what, folder, *rest = sys.argv[1:]
    if what == "lint":
        print("\n".join(lint(folder)))
    elif what == "ask":
        variables_of(folder, rest[0], json.loads(rest[1]))
        ask(folder, rest[0], json.loads(rest[1]))
    else:
        sys.exit(f"dashboards.py: {what} is nothing to do")


if __name__ == "__main__":
    main()
