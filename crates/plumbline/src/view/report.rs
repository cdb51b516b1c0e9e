//! What pages made by hand have in common.

/// Of every page.
pub const STYLE: &str = "\
:root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.3rem}h2{font-size:1rem;margin-top:2rem}table{border-collapse:collapse;width:100%}\
th,td{text-align:left;padding:.2rem .8rem .2rem 0;border-bottom:1px solid #8884;vertical-align:top}\
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}td.n{white-space:nowrap}.layer{font-size:1.6rem;font-weight:600}\
.muted{opacity:.7}.bar{display:flex;height:1.4rem;border-radius:3px;overflow:hidden;margin:.5rem 0}\
.bar span{color:#fff;font-size:.75rem;padding:.15rem .3rem;overflow:hidden;white-space:nowrap}\
.queue{background:#7b6ca8}.send{background:#5a7fa8}.network{background:#c77d2e}.server{background:#b04a4a}\
.deliver{background:#4f8f5b}code{overflow-wrap:anywhere}";

/// Text that a browser shows as it is.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
