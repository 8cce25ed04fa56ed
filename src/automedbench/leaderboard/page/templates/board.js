// --- begin ---------------------------------------------------------------------------------------------------------

document.querySelector(".top .wrap").append(themeButton());
for (const button of document.querySelectorAll(".stage"))
  button.addEventListener("click", () => change({ stage: state.stage === button.dataset.stage ? "" : button.dataset.stage }));
new MutationObserver(forgetCharts).observe(document.getElementById("board"), { childList: true, subtree: true });
foldSections();
drawAll();
