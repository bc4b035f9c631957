"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const select = byId("configuration");
  const button = byId("arrows");
  const space = "http://www.w3.org/2000/svg";

  // From the middle of the line that a label is about to the middle of the line of the finding.
  const draw = () => {
    for (const source of document.querySelectorAll(".source")) {
      const svg = source.querySelector("svg.arrows");
      svg.replaceChildren();
      if (button.getAttribute("aria-pressed") !== "true") continue;
      const top = source.getBoundingClientRect().top;
      const middle = (row) => {
        const box = row.firstElementChild.getBoundingClientRect();
        return box.top - top + Math.min(box.height, 20) / 2;
      };
      let depth = 0;
      for (const article of source.querySelectorAll("tr.finding:not(.hidden) article")) {
        const target = byId(article.dataset.at);
        for (const item of article.querySelectorAll("li[data-from]")) {
          const row = byId(item.dataset.from);
          if (!row || !source.contains(row) || row === target) continue;
          const [from, to] = [middle(row), middle(target)];
          const left = 40 - 7 * (depth++ % 5);
          const path = document.createElementNS(space, "path");
          path.setAttribute("d", `M48 ${from} H${left + 6} Q${left} ${from} ${left} ${from + Math.sign(to - from) * 6}` +
            ` V${to - Math.sign(to - from) * 6} Q${left} ${to} ${left + 6} ${to} H46`);
          path.dataset.finding = article.id;
          svg.append(path);
          const tip = document.createElementNS(space, "path");
          tip.setAttribute("d", `M50 ${to} l-7 -4 v8 z`);
          tip.classList.add("tip");
          svg.append(tip);
        }
      }
    }
  };

  // A row holds in a configuration if it holds always or names it.
  const choose = () => {
    const chosen = select.value;
    let hidden = 0;
    for (const element of document.querySelectorAll("[data-when]")) {
      const ways = element.dataset.when.split(" or ").filter(Boolean);
      const out = chosen !== "" && ways.length > 0 && !ways.includes(chosen);
      element.classList.toggle("hidden", out);
      hidden += out ? 1 : 0;
    }
    const found = document.querySelectorAll("tr.finding:not(.hidden)").length;
    byId("status").textContent = chosen === "" ? "" : `${found} findings when ${chosen}; ${hidden} entries of other configurations hidden`;
    draw();
  };

  const light = (article, on) => {
    for (const path of document.querySelectorAll(`path[data-finding="${article.id}"]`)) path.classList.toggle("on", on);
    for (const item of article.querySelectorAll("li[data-from]")) byId(item.dataset.from)?.classList.toggle("lit", on);
  };
  for (const article of document.querySelectorAll("article")) {
    for (const [name, on] of [["mouseenter", true], ["focusin", true], ["mouseleave", false], ["focusout", false]]) {
      article.addEventListener(name, () => light(article, on));
    }
  }

  // n and p go from finding to finding.
  document.addEventListener("keydown", (event) => {
    if (event.target.closest("select, input") || event.ctrlKey || event.metaKey || event.altKey) return;
    const step = { n: 1, p: -1 }[event.key];
    if (!step) return;
    const all = [...document.querySelectorAll("tr.finding:not(.hidden) article")];
    if (all.length === 0) return;
    const at = all.indexOf(document.activeElement.closest("article"));
    const next = all[(at < 0 ? (step > 0 ? 0 : all.length - 1) : at + step + all.length) % all.length];
    next.focus({ preventScroll: true });
    next.scrollIntoView({ block: "center" });
    next.closest(".source").scrollLeft = 0;
  });

  select.addEventListener("change", choose);
  button.addEventListener("click", () => {
    button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
    draw();
  });
  window.addEventListener("resize", draw);
  draw();
})();
