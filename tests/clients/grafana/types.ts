// Types of Grafana, with enumerations as the strings that stand in JSON.
import type * as schema from "@grafana/schema";
import type { Options as StatOptions } from "@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen";
import type { Options as TimeSeriesOptions, FieldConfig as TimeSeriesFields } from "@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen";
import type { Options as TableOptions } from "@grafana/schema/dist/esm/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen";

type Plain<T> = T extends string ? `${T}` : T extends (infer U)[] ? Plain<U>[] : T extends object ? { [K in keyof T]: Plain<T[K]> } : T;
type Query = { refId: string; expr: string; editorMode: "code" } & ({ legendFormat: string; range: true } | { format: "table"; instant: true; range: false });
type Of<Type extends string, Options, Custom> = Plain<Omit<schema.Panel, "type" | "options" | "targets" | "fieldConfig">> & {
  type: Type;
  options: Plain<Options>;
  targets: Query[];
  fieldConfig: { defaults: Plain<Omit<schema.FieldConfig, "custom">> & { custom: Plain<Custom> }; overrides: [] };
};
type Panel = Of<"stat", StatOptions, {}> | Of<"timeseries", TimeSeriesOptions, TimeSeriesFields> | Of<"table", TableOptions, {}> | Plain<schema.RowPanel>;
type Alerts = Plain<schema.AnnotationQuery> & { expr: string; step: string; titleFormat: string; textFormat: string };
export type Dashboard = Omit<Plain<schema.Dashboard>, "panels" | "annotations"> & { panels: Panel[]; annotations: { list: Alerts[] } };
