"""Repository rules for what is installed on this machine: TensorFlow's headers and libraries, and googletest."""

_ASK = """
import importlib.util, sys
spec = importlib.util.find_spec("tensorflow")
sys.stdout.write(list(spec.submodule_search_locations)[0] if spec else "")
"""

_TENSORFLOW = """
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "tensorflow",
    srcs = ["lib/libtensorflow_cc.so.2", "lib/libtensorflow_framework.so.2"],
    hdrs = glob(["include/**"], exclude = ["include/**/BUILD", "include/**/BUILD.bazel"]),
    defines = ["EIGEN_MAX_ALIGN_BYTES=64", "_GLIBCXX_USE_CXX11_ABI=1"],
    includes = [{includes}],
)
"""

# As in setup.py: the headers of what TensorFlow's own headers include.
_INCLUDES = [
    "include",
    "include/external/com_github_grpc_grpc/include",
    "include/external/farmhash_archive/src",
    "include/external/nsync/public",
]

_GOOGLETEST = """
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "gtest_main",
    srcs = ["googletest/src/gtest-all.cc", "googletest/src/gtest_main.cc"],
    hdrs = glob(["googletest/include/**/*.h"]),
    textual_hdrs = glob(["googletest/src/*.h", "googletest/src/*.cc"]),
    includes = ["googletest", "googletest/include"],
    linkopts = ["-pthread"],
)
"""

def _tensorflow(ctx):
    python = ctx.os.environ.get("PYTHON_BIN_PATH") or ctx.which("python3")
    result = ctx.execute([python, "-c", _ASK])
    home = result.stdout.strip()
    if result.return_code != 0 or not home:
        fail("{} has no TensorFlow; set PYTHON_BIN_PATH to a Python that has.".format(python))
    ctx.symlink(home + "/include", "include")
    for library in ["libtensorflow_cc.so.2", "libtensorflow_framework.so.2"]:
        ctx.symlink(home + "/" + library, "lib/" + library)
    includes = [path for path in _INCLUDES if ctx.path(home + "/" + path).exists]
    ctx.file("BUILD", _TENSORFLOW.format(includes = ", ".join(["\"%s\"" % path for path in includes])))

installed_tensorflow = repository_rule(
    implementation = _tensorflow,
    doc = "@tensorflow//:tensorflow, the one that PYTHON_BIN_PATH or python3 imports.",
    environ = ["PYTHON_BIN_PATH", "PATH"],
    local = True,
)

def _googletest(ctx):
    home = ctx.os.environ.get("GOOGLETEST_SOURCE") or "/usr/src/googletest"
    if not ctx.path(home + "/googletest/src/gtest-all.cc").exists:
        fail("There is no googletest in {}; install Debian's package googletest, or set GOOGLETEST_SOURCE.".format(home))
    ctx.symlink(home + "/googletest", "googletest")
    ctx.file("BUILD", _GOOGLETEST)

installed_googletest = repository_rule(
    implementation = _googletest,
    doc = "@googletest//:gtest_main, built from the sources in GOOGLETEST_SOURCE or where Debian puts them.",
    environ = ["GOOGLETEST_SOURCE"],
    local = True,
)
