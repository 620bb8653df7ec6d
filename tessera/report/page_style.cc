#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "tessera/log/drawing.h"
#include "tessera/report/html_page.h"

namespace tessera {

namespace {

// c0 to c7 are the colours of data in charts.
constexpr const char* kStyle = R"css(
:root{color-scheme:light dark;--page:#f4f4f1;--surface:#fcfcfb;--ink:#0b0b0b;--ink2:#52514e;--ink3:#76756f;--rule:#e3e2dd;
--axis:#b9b8b1;--accent:#2a78d6;--soft:#e8f0fa;--warn:#8a5a00;--warnbg:#fdf3dc;
LIGHT_PALETTE}
@media(prefers-color-scheme:dark){:root{--page:#0d0d0d;--surface:#1a1a19;--ink:#fff;--ink2:#c3c2b7;--ink3:#98978f;
--rule:#2c2c2a;--axis:#4d4c48;--accent:#3987e5;--soft:#1c2a3b;--warn:#f0c466;--warnbg:#2d2410;
DARK_PALETTE}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,Helvetica,Arial,sans-serif;
-webkit-text-size-adjust:100%}
main{max-width:1240px;margin:0 auto;padding:28px 20px 60px}
header{margin:8px 0 24px}
.eyebrow{font-size:12px;font-weight:600;letter-spacing:.08em;text-transform:uppercase;color:var(--accent);margin:0}
h1{font-size:30px;line-height:1.2;margin:4px 0 6px;overflow-wrap:anywhere;letter-spacing:-.01em}
h2{font-size:19px;margin:0 0 4px;letter-spacing:-.005em}
h3{font-size:14px;margin:22px 0 8px;color:var(--ink);overflow-wrap:anywhere}
p{margin:0 0 10px}.sub,.hint{color:var(--ink2)}.hint{font-size:13px;max-width:80ch}
section{background:var(--surface);border:1px solid var(--rule);border-radius:12px;padding:20px 22px;margin:0 0 18px}
nav{display:flex;flex-wrap:wrap;gap:6px 16px;margin:0 0 18px;font-size:13px}nav a{color:var(--accent);text-decoration:none}
nav a:hover{text-decoration:underline}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(132px,1fr));gap:10px;margin:0 0 18px}
.tile{background:var(--surface);border:1px solid var(--rule);border-radius:12px;padding:14px 16px}
.tile b{display:block;font-size:24px;line-height:1.2;font-weight:600;font-variant-numeric:tabular-nums;letter-spacing:-.01em}
.tile span{color:var(--ink2);font-size:12.5px}
.scroll{overflow-x:auto;margin:8px -22px 0;padding:0 22px}
table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums;min-width:100%}
th,td{padding:6px 14px 6px 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--rule)}
th{font-weight:600;color:var(--ink2);vertical-align:bottom;line-height:1.3}
td.n,th.n{text-align:right;white-space:nowrap}th.n{white-space:normal;min-width:64px}
td:first-child{min-width:270px;max-width:420px;overflow-wrap:break-word}td:last-child,th:last-child{padding-right:0}
tbody tr:last-child td{border-bottom:0}tr.base td{background:var(--soft)}tr.group th{padding-top:16px;color:var(--ink)}
td.same{color:var(--ink3)}
@media screen{#settings td+td{white-space:nowrap}#settings td+td>wbr{display:none}}
sup{font-size:10.5px;color:var(--accent);line-height:0;padding-left:2px;font-weight:600}
.notes{margin:12px 0 0;padding:0;list-style:none;font-size:12.5px;color:var(--ink2);overflow-wrap:anywhere}
.notes li{margin:2px 0}
.problems{background:var(--warnbg);border-color:transparent}.problems h2{color:var(--warn)}
.problems li{overflow-wrap:anywhere;margin:3px 0}.problems ul{margin:6px 0 0;padding-left:18px;font-size:13px}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,420px),1fr));gap:14px 26px;margin:10px 0 0}
.charts.small{grid-template-columns:repeat(auto-fill,minmax(min(100%,258px),1fr));gap:10px 18px}
.chart{margin:0;min-width:0;max-width:620px}figcaption{font-size:13px;font-weight:600;color:var(--ink);margin:0 0 2px}
svg{display:block;width:100%;height:auto}
svg text{font-family:inherit;font-size:12px;fill:var(--ink2);font-variant-numeric:tabular-nums}
.grid{stroke:var(--rule);stroke-width:1}.axis{stroke:var(--axis);stroke-width:1}
.line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
.dot{stroke:var(--surface);stroke-width:1.5}
.line.c0{stroke:var(--c0)}.line.c1{stroke:var(--c1)}.line.c2{stroke:var(--c2)}.line.c3{stroke:var(--c3)}
.line.c4{stroke:var(--c4)}.line.c5{stroke:var(--c5)}.line.c6{stroke:var(--c6)}.line.c7{stroke:var(--c7)}
.dot.c0{fill:var(--c0)}.dot.c1{fill:var(--c1)}.dot.c2{fill:var(--c2)}.dot.c3{fill:var(--c3)}
.dot.c4{fill:var(--c4)}.dot.c5{fill:var(--c5)}.dot.c6{fill:var(--c6)}.dot.c7{fill:var(--c7)}
i{font-style:normal}i.c0{background:var(--c0)}i.c1{background:var(--c1)}i.c2{background:var(--c2)}i.c3{background:var(--c3)}
i.c4{background:var(--c4)}i.c5{background:var(--c5)}i.c6{background:var(--c6)}i.c7{background:var(--c7)}i.c8{background:var(--axis)}
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;margin:8px 0 0;padding:0;list-style:none;font-size:12.5px;color:var(--ink2)}
.legend li{display:flex;align-items:baseline;gap:7px;overflow-wrap:anywhere}
.legend i{flex:none;width:12px;height:12px;border-radius:3px;position:relative;top:1.5px}
.legend.lines i{height:4px;width:16px;border-radius:2px;top:-3px}
.bars{display:grid;grid-template-columns:minmax(120px,max-content) repeat(var(--n),minmax(90px,1fr));gap:5px 22px;font-size:13px;margin:10px 0 0}
.bars>b{font-weight:600;color:var(--ink2);font-size:12.5px}.bars>b.wide{grid-column:1/-1;color:var(--ink);margin-top:10px;overflow-wrap:anywhere}
.bars>span{overflow-wrap:anywhere;max-width:330px;line-height:1.35}.bars>span.base{font-weight:600}
.best{background:var(--accent);color:var(--surface);font-size:11px;font-weight:600;border-radius:8px;padding:1px 7px;white-space:nowrap}
.bar{display:flex;align-items:center;gap:8px;font-variant-numeric:tabular-nums;min-width:0}
.bar>em{flex:1;min-width:0;height:14px;display:block}.bar>em>i{display:block;height:14px;background:var(--accent);border-radius:0 4px 4px 0;min-width:1px}
.bar>u{text-decoration:none;flex:none;min-width:56px;color:var(--ink);font-size:12.5px;text-align:right}
.stacks{display:grid;grid-template-columns:minmax(120px,max-content) auto minmax(0,1fr) max-content;gap:4px 12px;font-size:13px;
align-items:center;margin:12px 0 0}
.stacks>span{overflow-wrap:anywhere;max-width:330px;line-height:1.35}.stacks>b.wide{grid-column:1/-1;margin-top:10px;overflow-wrap:anywhere}
.stacks small{color:var(--ink2);font-size:12px}.stacks u{text-decoration:none;font-variant-numeric:tabular-nums;text-align:right;font-size:12.5px}
.stack{display:flex;gap:2px;height:14px;min-width:0}.stack i{display:block;height:14px;flex:none;border-radius:1.5px}
.stack i:last-child{border-radius:1.5px 4px 4px 1.5px}
details{margin:12px 0 0}summary{cursor:pointer;color:var(--accent);font-size:13px}
footer{color:var(--ink3);font-size:12.5px;margin:18px 2px 0}
@media(max-width:640px){main{padding:18px 12px 40px}section{padding:16px 14px;border-radius:10px}h1{font-size:24px}
.scroll{margin:8px -14px 0;padding:0 14px}.charts{gap:16px}td:first-child{min-width:150px}
.bars{grid-template-columns:1fr;gap:3px}.bars>b.head{display:none}.bars>span{max-width:none;margin-top:9px;font-weight:600}
.bar::before{content:attr(data-name);flex:none;width:118px;color:var(--ink2);font-size:12px}
.stacks{grid-template-columns:auto minmax(0,1fr) max-content}.stacks>span{grid-column:1/-1;max-width:none;margin-top:8px;font-weight:600}
.stacks>span:empty{display:none}svg text{font-size:14px}}
@media print{:root{color-scheme:light;--page:#fff;--surface:#fff;--ink:#000;--ink2:#444;--ink3:#666;--rule:#ddd;--axis:#999;--accent:#2a78d6;--soft:#eef4fc;
--warn:#6b4600;--warnbg:#fdf6e6;LIGHT_PALETTE}
*{-webkit-print-color-adjust:exact;print-color-adjust:exact}body{font-size:11px}main{max-width:none;padding:0}nav{display:none}
section{border:0;border-top:1px solid var(--rule);border-radius:0;padding:12px 0;margin:0}.scroll{overflow:visible;margin:8px 0 0;padding:0}
table{font-size:9.5px}th,td{padding:3px 8px 3px 0}td:first-child{min-width:90px}td.n{white-space:normal}th.n{min-width:0}
.chart,.tile,.stacks>*,.bars>*,tr,h2,h3{break-inside:avoid}h2,h3,figcaption{break-after:avoid}
.charts{grid-template-columns:repeat(2,1fr)}.charts.small{grid-template-columns:repeat(4,1fr)}.tiles{grid-template-columns:repeat(4,1fr)}}
)css";

std::string declared(const Palette& palette) {
  std::string text;
  for (size_t i = 0; i < palette.size(); ++i) text += fmt::format("{}--c{}:{}", i == 0 ? "" : ";", i, palette[i]);
  return text;
}

}  // namespace

std::string page_style() {
  std::string style = kStyle;
  for (const auto& [word, palette] : {std::pair("LIGHT_PALETTE", &kLightPalette), {"DARK_PALETTE", &kDarkPalette}}) {
    for (size_t at = style.find(word); at != style.npos; at = style.find(word, at)) {
      style.replace(at, std::strlen(word), declared(*palette));
    }
  }
  return style;
}

}  // namespace tessera
