// A shared library that is no plugin.
extern "C" int tape_cuda_plugin_of_nothing() {
  return 0;
}
