// Shows one figure over the whole screen. Without this script the page is complete.
{
  const figures = [...document.querySelectorAll("figure")];
  const make = (name, text, parent) => {
    const made = document.createElement(name);
    made.textContent = text;
    parent.append(made);
    return made;
  };
  const dialog = make("dialog", "", document.body);
  const title = make("h2", "", dialog);
  title.id = "shown-title";
  title.setAttribute("aria-live", "polite");
  dialog.setAttribute("aria-labelledby", title.id);
  const bar = make("nav", "", dialog);
  const box = make("div", "", dialog);
  box.className = "wide";
  const image = make("img", "", box);
  const caption = make("div", "", dialog);
  caption.className = "caption";
  let shown = 0;

  const titleOf = (figure) => figure.closest("section").querySelector("h2").firstChild.data;
  const show = (number) => {
    shown = (number + figures.length) % figures.length;
    const figure = figures[shown];
    const source = figure.querySelector("img");
    title.textContent = `${titleOf(figure)} (${shown + 1} of ${figures.length})`;
    image.src = source.src;
    image.alt = source.alt;
    caption.replaceChildren(...figure.querySelector("figcaption").cloneNode(true).childNodes);
    caption.scrollTop = 0;
  };
  const open = async (number) => {
    show(number);
    // First the whole page, then the dialog on top of it: a dialog itself cannot fill the screen.
    await document.documentElement.requestFullscreen?.().catch(() => {});
    if (!dialog.open) dialog.showModal();
  };
  const button = (label, key, action) => {
    const made = make("button", label, bar);
    made.type = "button";
    made.title = `Key: ${key}`;
    made.addEventListener("click", action);
    return made;
  };
  button("← Previous", "left arrow", () => show(shown - 1));
  button("Next →", "right arrow", () => show(shown + 1)).autofocus = true;
  button("Close", "Escape", () => dialog.close());

  dialog.addEventListener("close", () => {
    if (document.fullscreenElement) document.exitFullscreen();
    figures[shown].scrollIntoView({ block: "center" });
    figures[shown].closest("section").querySelector("h2 button").focus({ preventScroll: true });
  });
  document.addEventListener("fullscreenchange", () => {
    if (!document.fullscreenElement && dialog.open) dialog.close();
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (dialog.open) {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (step) show(shown + step);
    } else if (event.key === "f" && figures.length) {
      // The first figure whose end is not above the middle of the window.
      const below = (each) => each.getBoundingClientRect().bottom > innerHeight / 2;
      open(Math.max(0, figures.findIndex(below)));
    }
  });
  figures.forEach((figure, number) => {
    const opener = make("button", "Full screen", figure.closest("section").querySelector("h2"));
    opener.type = "button";
    opener.title = "Key: f";
    opener.setAttribute("aria-label", `Full screen: ${titleOf(figure)}`);
    opener.addEventListener("click", () => open(number));
  });
}
