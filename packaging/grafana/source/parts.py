"""What the dashboards are made of: a dashboard with the variables that all have, panels, and names of series with the variables' matchers.

Each panel says what it shows in its description, has a unit, and asks the data source that the reader has chosen."""
from grafana_foundation_sdk.builders import common, heatmap, stat, table, timeseries
from grafana_foundation_sdk.builders import dashboard as boards
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    BigValueGraphMode,
    LegendDisplayMode,
    LegendPlacement,
    StackingMode,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    DataSourceRef,
    DataTransformerConfig,
    GridPos,
    Threshold,
    ThresholdsMode,
    VariableOption,
    VariableRefresh,
    VariableSort,
)
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
RATE = "[$__rate_interval]"
# Protocols whose operations somebody waits for. The others are happenings (connections) and stages of one send (tcp).
WAITED_FOR = 'protocol!~"connections|tcp"'
CONNECTIONS = 'protocol="connections"'
# Lost, and not made up for: what is said is incomplete.
LOST = 'cause!~"sampled_out|swept"'
SECONDS, BYTES, BYTES_A_SECOND, PER_SECOND, COUNT, SHARE = "s", "bytes", "Bps", "ops", "short", "percentunit"
GREEN, ORANGE, RED = "green", "orange", "red"


def series(name, *matchers):
    """A series of the chosen jobs and instances; what is matched beyond that."""
    return name + "{" + ", ".join(['job=~"$job"', 'instance=~"$instance"', *matchers]) + "}"


def rate(name, *matchers):
    return f"rate({series(name, *matchers)}{RATE})"


def operations(*matchers):
    """Operations a second."""
    return rate("plumbline_operation_duration_seconds_count", *matchers)


def quantile(q, by, *matchers, name="plumbline_operation_duration_seconds"):
    return f"histogram_quantile({q}, sum by (le, {by}) ({rate(f'{name}_bucket', *matchers)}))"


def share(part, whole):
    """From 0 to 1; nothing where there is nothing to share."""
    return f"{part} / ({whole} > 0)"


def over(bound, by, *matchers):
    """The share of operations that took longer than this bound of the histogram, in seconds."""
    fast = rate("plumbline_operation_duration_seconds_bucket", f'le="{bound}"', *matchers)
    return f"1 - sum by ({by}) ({fast}) / (sum by ({by}) ({operations(*matchers)}) > 0)"


def top(count, expression):
    return f"topk({count}, {expression})"


def _place(panel, title, description, unit, width, height):
    return panel.title(title).description(description).datasource(SOURCE).unit(unit).grid_pos(GridPos(x=0, y=0, w=width, h=height))


def _queries(panel, queries):
    for number, (expression, legend) in enumerate(queries):
        panel.with_target(Dataquery().datasource(SOURCE).expr(expression).legend_format(legend).ref_id(chr(ord("A") + number)))
    return panel


def graph(title, description, unit, *queries, width=12, height=8, stacked=False):
    """Lines over time; QUERIES are pairs of an expression and its legend."""
    panel = _queries(_place(timeseries.Panel(), title, description, unit, width, height), queries)
    panel.legend(common.VizLegendOptions().display_mode(LegendDisplayMode.LIST).placement(LegendPlacement.BOTTOM).show_legend(True))
    panel.tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI)).fill_opacity(40 if stacked else 8).min(0)
    return panel.stacking(common.StackingConfig().mode(StackingMode.NORMAL)) if stacked else panel


def number(title, description, unit, expression, *, width=4, height=4, warn=None, bad=None):
    """One number as it is now; orange from WARN on, red from BAD on."""
    steps = [Threshold(color=GREEN)]
    steps += [Threshold(color=color, value=value) for color, value in ((ORANGE, warn), (RED, bad)) if value is not None]
    panel = _place(stat.Panel(), title, description, unit, width, height).color_mode(BigValueColorMode.VALUE).graph_mode(BigValueGraphMode.AREA)
    panel.thresholds(boards.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps))
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    return _queries(panel, [(expression, "")])


def rows(title, description, expression, columns, *, unit=COUNT, value="Value", width=24, height=7):
    """A table of what is now: COLUMNS are its labels, in order, and VALUE the heading of the number, or None where it says nothing."""
    panel = _place(table.Panel(), title, description, unit, width, height).show_header(True)
    panel.with_target(Dataquery().datasource(SOURCE).expr(expression).instant().format(PromQueryFormat.TABLE).ref_id("A"))
    order = {name: at for at, name in enumerate([*columns, "Value"])}
    hidden = {"Time": True, **({"Value": True} if value is None else {})}
    names = {"Value": value} if value else {}
    options = {"excludeByName": hidden, "indexByName": order, "renameByName": names}
    return panel.with_transformation(DataTransformerConfig(id_val="organize", options=options))


def heat(title, description, *matchers, width=24, height=9):
    """How many operations took how long, over time."""
    buckets = f"sum by (le) (increase({series('plumbline_operation_duration_seconds_bucket', *matchers)}{RATE}))"
    panel = _place(heatmap.Panel(), title, description, COUNT, width, height)
    panel.with_target(Dataquery().datasource(SOURCE).expr(buckets).legend_format("{{le}}").format(PromQueryFormat.HEATMAP).ref_id("A"))
    panel.color(heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Oranges").steps(64))
    return panel.y_axis(heatmap.YAxisConfig().unit(SECONDS)).calculate(False)


def variable(name, label, query, *, multi=True):
    made = boards.QueryVariable(name).label(label).query(query).datasource(SOURCE).refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
    made.sort(VariableSort.ALPHABETICAL_ASC)
    if multi:
        made.multi(True).include_all(True).all_value(".+").current(VariableOption(selected=True, text="All", value="$__all"))
    return made


def dashboard(name, title, description, *, of="plumbline_build_info", more=()):
    """With the variables that all have: data source, job and instance, of those that have a series whose name matches OF; and MORE."""
    made = boards.Dashboard(f"Plumbline / {title}").uid(f"plumbline-{name}").description(description).tags(["plumbline"]).readonly()
    made.time("now-3h", "now").refresh("1m").timezone("browser").tooltip(DashboardCursorSync.CROSSHAIR)
    made.with_variable(boards.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    made.with_variable(variable("job", "Job", f'label_values({{__name__=~"{of}"}}, job)'))
    made.with_variable(variable("instance", "Instance", f'label_values({{__name__=~"{of}", job=~"$job"}}, instance)'))
    for one in more:
        made.with_variable(one)
    others = boards.DashboardLink("Plumbline").type(DashboardLinkType.DASHBOARDS).tags(["plumbline"])
    return made.link(others.as_dropdown(True).include_vars(True).keep_time(True))


def filled(board, *panels):
    """The dashboard with these panels, from left to right; a row is full at a width of 24."""
    for number, panel in enumerate(panels):
        board.with_panel(panel.id(number + 1))
    return board
