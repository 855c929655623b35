// The time left of the class, in the top bar of JupyterLab.
//
// It is what JupyterLab loads of an extension, written by hand: a container of shared modules with
// `init` and `get`. So it needs no build.
"use strict";

(() => {
  const NAME = "lab-class-time", LAST_S = 300, ASK_MS = 15000;
  let scope = {};

  /** A module that JupyterLab shares. */
  async function shared(name) {
    const [version] = Object.values(scope[name]);
    return (await version.get())();
  }

  /** The time left as a text: `1:02:03`, or `4:59` in the last hour. */
  function counted(leftS) {
    const two = (number) => String(number).padStart(2, "0"), hours = Math.floor(leftS / 3600);
    const minutes = Math.floor(leftS / 60) % 60, seconds = two(leftS % 60);
    return hours ? `${hours}:${two(minutes)}:${seconds} left` : `${minutes}:${seconds} left`;
  }

  function show(widget, endsS) {
    const {node} = widget, leftS = Math.ceil(endsS - Date.now() / 1000), isLast = leftS <= LAST_S;
    widget.setHidden(endsS === null);
    node.textContent = leftS > 0 ? counted(leftS) : "The class is over.";
    node.style.color = isLast ? "var(--jp-error-color1)" : "var(--jp-ui-font-color1)";
    node.style.fontWeight = isLast ? "bold" : "normal";
  }

  function clock() {
    const node = document.createElement("div");
    node.title = "The time left of the class. At its end, runs save their state and end.";
    node.setAttribute("role", "timer");
    node.setAttribute("aria-label", "Time left of the class");
    Object.assign(node.style, {fontVariantNumeric: "tabular-nums", lineHeight: "28px", padding: "0 12px"});
    return node;
  }

  async function activate(app) {
    const [{Widget}, {ServerConnection}] = await Promise.all([shared("@lumino/widgets"), shared("@jupyterlab/services")]);
    const widget = new Widget({node: clock()}), settings = app.serviceManager.serverSettings;
    let endsS = null;
    const ask = async () => {
      if (document.hidden) return;
      try {
        const answer = await ServerConnection.makeRequest(`${settings.baseUrl}lab-class/time`, {}, settings);
        if (!answer.ok) return;
        const {left_s} = await answer.json();
        endsS = left_s === null ? null : Date.now() / 1000 + left_s;
        show(widget, endsS);
      } catch (error) {
        console.debug(NAME, error);  // the server is away: the clock goes on
      }
    };
    widget.id = NAME;
    show(widget, endsS);
    app.shell.add(widget, "top", {rank: 1000});
    setInterval(() => show(widget, endsS), 1000);
    setInterval(ask, ASK_MS);
    document.addEventListener("visibilitychange", ask);
    await ask();
  }

  const plugin = {id: `${NAME}:plugin`, description: "The time left of the class", autoStart: true, activate};
  window._JUPYTERLAB = window._JUPYTERLAB || {};
  window._JUPYTERLAB[NAME] = {
    init: (modules) => { scope = modules; },
    get: async () => () => ({__esModule: true, default: plugin}),
  };
})();
