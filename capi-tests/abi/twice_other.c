#include <nexar.h>
#include <nexar.h>

nexarConfig_t other_config(void);

nexarConfig_t other_config(void) {
  nexarConfig_t config = NEXAR_CONFIG_INITIALIZER;
  return config;
}
