"""The one style of every page: light and dark, phone and wide screen, print. No font, picture or
script from elsewhere, and none at all of the last two. The colours of series are those of Okabe and
Ito, which colour-blind readers tell apart; lines differ by their dashes as well."""

STYLE = """
:root{color-scheme:light dark;--ink:#1c1d20;--soft:#585b62;--paper:#fff;--card:#f6f5f1;--line:#dcd9d1;
--track:#ebe8e0;--kept:#2a6f97;--lost:#c8553d;--good:#00694c;--good-paper:#dff1ea;--bad:#a33b00;
--bad-paper:#fbe7db;--even:#4a4d55;--even-paper:#e9e8e4;--s0:#0072b2;--s1:#d55e00;--s2:#008a64;
--s3:#b0568a;--s4:#a87400;--s5:#3c8fc4;--s6:#5b5b5b;--train:#2a6f97;--val:#61a5c2;--test:#7b5ea7;
--ood:#6a994e;--rejected:#c8553d;--duplicates:#e9b44c}
@media screen and (prefers-color-scheme:dark){:root{--ink:#e9e7e2;--soft:#a9acb3;--paper:#15171a;
--card:#1f2226;--line:#373b42;--track:#2c3036;--kept:#5aa9d6;--lost:#e5785f;--good:#6fd3ae;
--good-paper:#12352a;--bad:#f5a274;--bad-paper:#43230f;--even:#c3c6cc;--even-paper:#31353b;--s0:#56b4e9;
--s1:#f08a45;--s2:#2fbf97;--s3:#dc8fbb;--s4:#e6b23a;--s5:#8fcdf3;--s6:#b5b5b5;--train:#5aa9d6;
--val:#8ec7e0;--test:#a98fd4;--ood:#93c178;--rejected:#e5785f;--duplicates:#e9b44c}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{font:1rem/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif;color:var(--ink);
background:var(--paper);max-width:74rem;margin:0 auto;padding:1rem 1.25rem 3rem;overflow-wrap:anywhere}
h1{font-size:1.75rem;line-height:1.2;margin:.15rem 0;letter-spacing:-.01em}
h2{font-size:1.25rem;margin:2.5rem 0 .6rem;padding-bottom:.25rem;border-bottom:1px solid var(--line)}
h3{font-size:1rem;margin:1.4rem 0 .4rem}
p{margin:.5rem 0}
section>p{max-width:46rem}
a{color:var(--kept)}
.soft,.from,.axisname,.eyebrow{color:var(--soft)}
.eyebrow{font-size:.8rem;letter-spacing:.04em;margin:0}
.lead{margin:.2rem 0 .8rem;color:var(--soft)}
.num,td.n,.big,.ys,.xs,.tiles b{font-variant-numeric:tabular-nums}
h1+.tiles{margin-top:.7rem}
nav{margin:1rem 0 0;display:flex;flex-wrap:wrap;gap:.2rem 1.1rem;font-size:.9rem}
code{font-size:.85em;background:var(--card);padding:0 .25em;border-radius:3px}
pre{background:var(--card);padding:.75rem 1rem;overflow-x:auto;font-size:.85rem;border-radius:6px;
overflow-wrap:normal}

.first{display:grid;grid-template-columns:minmax(0,1.15fr) minmax(0,1fr);gap:.9rem;margin:.6rem 0 .9rem}
.first>div{display:flex;flex-direction:column;gap:.9rem}
.card{background:var(--card);border-radius:8px;padding:.8rem 1rem;flex:1 1 auto}
.card h2{font-size:.85rem;font-weight:600;margin:0 0 .3rem;padding:0;border:0;color:var(--soft)}
.card p{margin:.25rem 0;font-size:.92rem}
.card .table{margin:.4rem 0 0}
.card ul{margin:.2rem 0;padding-left:1.1rem;font-size:.92rem}
.card p.big{font-size:3.4rem;line-height:1.05;font-weight:650;letter-spacing:-.02em}
.big small{font-size:1.1rem;font-weight:400;letter-spacing:0;color:var(--soft)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(9.5rem,1fr));gap:.6rem;font-size:.85rem}
.tiles div{background:var(--card);border-radius:8px;padding:.55rem .8rem;color:var(--soft)}
.tiles b{display:block;font-size:1.3rem;line-height:1.3;color:var(--ink)}
.stand{display:grid;grid-template-columns:minmax(0,1fr) max-content;gap:.1rem .8rem;align-items:baseline;
border-bottom:1px solid var(--line);padding:.35rem 0;font-size:.92rem}
.stand .num{color:var(--soft);grid-column:1/-1}
.stand .num b{color:var(--ink)}
.big .verdict{vertical-align:.5rem;letter-spacing:0;line-height:1.5}
.verdict{display:inline-block;padding:.05rem .5rem;border-radius:1rem;font-size:.82rem;font-weight:600;
white-space:nowrap;background:var(--even-paper);color:var(--even)}
.verdict.better{background:var(--good-paper);color:var(--good)}
.verdict.worse{background:var(--bad-paper);color:var(--bad)}
.refusal{border-left:4px solid var(--lost);background:var(--bad-paper);color:var(--ink);
padding:.5rem .8rem;margin:.5rem 0;border-radius:0 6px 6px 0}

svg{display:block;width:100%}
.step{margin:.5rem 0}
.step p{margin:0;display:flex;flex-wrap:wrap;justify-content:space-between;gap:0 1rem}
.bar{height:14px;background:var(--track);margin-top:2px;border-radius:2px}
.bar rect{fill:var(--s0)}
.bar.plain rect{fill:var(--s6)}
.thin{height:7px}
.ribbon{height:20px}
.kept rect,polygon.kept{fill:var(--kept)}
.lost rect,polygon.lost{fill:var(--lost)}
rect.train{fill:var(--train)}
rect.val{fill:var(--val)}
rect.test{fill:var(--test)}
rect.ood{fill:var(--ood)}
rect.rejected{fill:var(--rejected)}
rect.duplicates{fill:var(--duplicates)}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1rem;font-size:.85rem;margin:.3rem 0}
.legend span{display:flex;align-items:center;gap:.35rem}
svg.key{display:inline-block;vertical-align:-1px;width:14px;height:14px;flex:none}
svg.dash{width:26px;height:12px;flex:none}
.plots{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(19rem,100%),1fr));gap:1rem 1.5rem}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(27rem,100%),1fr));gap:1.2rem 2rem}
.charts .row{grid-template-columns:9.5rem minmax(0,1fr) 8.5rem}
figure{margin:0;min-width:0;break-inside:avoid}
figcaption{font-weight:600}
.plot{height:110px;border-bottom:1px solid var(--soft)}
.axis{position:relative;height:1.2rem;font-size:.75rem}
.axis span{position:absolute}

.chart .unit{font-size:.8rem;color:var(--soft);margin:.1rem 0 .5rem}
.frame{display:grid;grid-template-columns:3.2rem minmax(0,1fr);margin-right:1.3rem}
.ys,.xs{position:relative;font-size:.75rem;color:var(--soft)}
.ys span{position:absolute;right:.5rem;transform:translateY(50%)}
.xs{grid-column:2;height:1.3rem;margin-top:.25rem}
.xs span{position:absolute;transform:translateX(-50%);white-space:nowrap}
.lines{height:230px;overflow:visible}
.square{max-width:24rem}
.square .lines{height:auto;aspect-ratio:1}
.axisname{font-size:.8rem;text-align:center;margin:0 0 .2rem 3.2rem}
.lines path,.lines polyline,.dash path{fill:none;vector-effect:non-scaling-stroke}
.grid{stroke:var(--line);stroke-width:1}
.base{stroke:var(--soft);stroke-width:1}
.mark{stroke:var(--soft);stroke-width:1.5;stroke-dasharray:5 4}
.series{stroke-width:2;stroke-linejoin:round}
.dot{stroke-width:7;stroke-linecap:round}
.hit{stroke:transparent;stroke-width:12;stroke-linecap:round}
.c0{stroke:var(--s0)}.c1{stroke:var(--s1)}.c2{stroke:var(--s2)}.c3{stroke:var(--s3)}
.c4{stroke:var(--s4)}.c5{stroke:var(--s5)}.c6{stroke:var(--s6)}
.series.c1{stroke-dasharray:7 3}.series.c2{stroke-dasharray:2 3}.series.c3{stroke-dasharray:9 3 2 3}
.series.c4{stroke-dasharray:12 4}.series.c5{stroke-dasharray:4 2}.series.c6{stroke-dasharray:1 4}

.row{display:grid;grid-template-columns:13.5rem minmax(0,1fr) 9rem;grid-template-areas:"name fig num";
gap:0 .9rem;align-items:center;font-size:.9rem;break-inside:avoid}
.row .name{grid-area:name}
.row .num{grid-area:num;text-align:right}
.row .fig{grid-area:fig;min-width:0}
.row .bar{margin:.25rem 0}
.card .row{grid-template-columns:11.5rem minmax(0,1fr) 3.4rem}
.points{height:25px;overflow:visible}
.points .grid,.points .mark,.points .whisker{vector-effect:none}
.points .whisker{stroke-width:2}
.points circle{stroke:var(--paper);stroke-width:1}
.f0{fill:var(--s0)}.f1{fill:var(--s1)}.f2{fill:var(--s2)}.f3{fill:var(--s3)}.f4{fill:var(--s4)}.f5{fill:var(--s5)}.f6{fill:var(--s6)}
.row .xs{margin:0}

.table{overflow-x:auto;margin:.75rem 0}
table{border-collapse:collapse;font-size:.85rem;overflow-wrap:normal}
th,td{text-align:left;vertical-align:top;padding:.25rem .7rem .25rem 0;border-bottom:1px solid var(--line)}
th{white-space:nowrap;font-weight:600;color:var(--soft)}
th.n,td.n{text-align:right}
td{white-space:nowrap}
td.wide{white-space:normal;min-width:14rem;overflow-wrap:anywhere}
summary{cursor:pointer;font-size:.9rem;color:var(--soft)}
details{margin:.4rem 0}
.pair{display:grid;grid-template-columns:minmax(0,1fr) minmax(0,1fr);gap:.75rem;align-items:start}
.samples{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(20rem,100%),1fr));gap:.75rem;
align-items:start}
article{border-left:4px solid var(--lost);background:var(--card);padding:.4rem .7rem;margin:0 0 .6rem;
border-radius:0 6px 6px 0}
article.kept{border-color:var(--kept)}
.samples article{margin:0;border-color:var(--s0)}
.samples .k1{border-color:var(--s1)}.samples .k2{border-color:var(--s2)}.samples .k3{border-color:var(--s3)}
.samples .k4{border-color:var(--s4)}.samples .k5{border-color:var(--s5)}.samples .k6{border-color:var(--s6)}
.from{font-size:.75rem;margin:0 0 .2rem}
.text{margin:0;white-space:pre-wrap;font-size:.9rem}
.text i{font-size:.75rem;background:var(--bad-paper);padding:0 .2rem}
.summary{white-space:pre-wrap;overflow-wrap:anywhere}
.ways{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(17rem,100%),1fr));gap:.6rem}
.ways a{display:block;background:var(--card);border-radius:8px;padding:.6rem .9rem;color:var(--ink);
text-decoration:none;font-size:.88rem;border:1px solid transparent}
.ways a:hover,.ways a:focus{border-color:var(--kept)}
.ways b{display:block;color:var(--kept)}
.beside{margin-bottom:.75rem}
.talk{max-width:44rem;display:flex;flex-direction:column;gap:.3rem}
.talk p{margin:0;padding:.35rem .8rem;border-radius:12px;max-width:88%;font-size:.92rem}
.talk .asked{align-self:flex-end;background:var(--s0);color:var(--paper)}
.talk .said{align-self:flex-start;background:var(--card);margin-bottom:.5rem}
.chain{display:flex;flex-wrap:wrap;gap:.5rem;padding:0;margin:.6rem 0;list-style:none;align-items:stretch}
.chain li{background:var(--card);border-radius:8px;padding:.5rem .8rem;font-size:.85rem;flex:0 1 auto}
.chain li b{display:block}
.chain li{position:relative}
.chain li+li::before{content:"→";color:var(--soft);position:absolute;left:-1.35rem;top:calc(50% - .75rem)}
.chain{column-gap:1.7rem}
footer{margin-top:3rem;font-size:.8rem;color:var(--soft);border-top:1px solid var(--line);padding-top:.6rem}
@media(max-width:44rem){
body{padding:.8rem 1rem 2rem}
.pair,.first{grid-template-columns:minmax(0,1fr)}
.first>div{display:contents}
.first .changed{order:2}
.first .tiles{order:3}
.row,.card .row,.charts .row{grid-template-columns:minmax(0,1fr) max-content;grid-template-areas:"name num" "fig fig";
margin:.3rem 0}
.card p.big{font-size:2.7rem}
td.wide{min-width:7.5rem}
.tiles{grid-template-columns:repeat(2,minmax(0,1fr))}
}
@media print{
html{font-size:11px}
body{max-width:none;padding:0}
.table{overflow:visible}
nav{display:none}
.card,.tiles div,article,tr{break-inside:avoid}
h2,h3{break-after:avoid}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}
}
"""
